import { render } from "preact";
import { follow } from "./api/live";
import { App } from "./app";
import { showWhole } from "./parts/widths";
import { watchSession } from "./state/session";
import "./style/base.css";
import "./style/frame.css";
import "./style/parts.css";

render(<App />, document.getElementById("app")!);
follow();
watchSession();
document.addEventListener("mouseover", showWhole);
