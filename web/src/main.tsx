import { render } from "preact";
import { follow } from "./api/live";
import { App } from "./app";
import { readSession } from "./state/session";
import "./style/base.css";
import "./style/frame.css";
import "./style/parts.css";

readSession().catch(() => undefined); // the page itself says what is wrong
render(<App />, document.getElementById("app")!);
follow();
