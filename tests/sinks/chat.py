"""Stand-ins of chat and mail services. Each judges a message as its service documents it, and answers as it would.

Feishu, Lark   open.feishu.cn/document/client-docs/bot-v3/add-custom-bot
DingTalk       open.dingtalk.com/document/robots/custom-robot-access and …/customize-robot-security-settings
WeCom          developer.work.weixin.qq.com/document/path/91770
Slack          api.slack.com/messaging/webhooks
Teams          learn.microsoft.com: webhook trigger of Power Automate, with an adaptive card
"""

import base64
import hashlib
import hmac
import json
import socketserver
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Received(NamedTuple):
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


Judge = Callable[[Received], tuple[int, Any]]


class Standin:
    """An HTTP service that keeps what it received."""

    def __init__(self, judge: Judge, tls: ssl.SSLContext | None = None) -> None:
        self.judge, self.received = judge, list[Received]()
        self.taken = list[Received]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers.get("content-length", 0)))
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
                body = json.loads(content)
                one = Received(parts.path, query, {k.lower(): v for k, v in self.headers.items()}, body)
                outer.received.append(one)
                status, answer = outer.judge(one)
                sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                if status == 200 and not (isinstance(answer, dict) and any(answer.get(k) for k in ("code", "errcode"))):
                    outer.taken.append(one)
                self.send_response(status)
                if status in {301, 302, 307, 308}:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def do_GET(self) -> None:
                outer.received.append(Received(self.path, {}, {}, None))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"

    def __enter__(self) -> "Standin":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def feishu(secret: str = "") -> Judge:
    """19021: the signature is wrong, or its time is more than an hour off. 9499: not a message."""

    def judge(one: Received) -> tuple[int, Any]:
        if one.body.get("msg_type") != "text" or not one.body["content"].get("text"):
            return 200, {"code": 9499, "msg": "Bad Request", "data": {}}
        if secret:
            stamp = one.body.get("timestamp", "0")
            key = f"{stamp}\n{secret}".encode()
            sign = base64.b64encode(hmac.new(key, digestmod=hashlib.sha256).digest()).decode()
            if abs(time.time() - int(stamp)) > 3600 or one.body.get("sign") != sign:
                return 200, {"code": 19021, "msg": "sign match fail or timestamp is not within one hour", "data": {}}
        return 200, {"code": 0, "msg": "success", "data": {}, "StatusCode": 0, "StatusMessage": "success"}

    return judge


def dingtalk(secret: str = "") -> Judge:
    """310000: the signature is wrong, or more than an hour old."""

    def judge(one: Received) -> tuple[int, Any]:
        if one.query.get("access_token") != "tok":
            return 200, {"errcode": 300001, "errmsg": "token is not exist"}
        if secret:
            stamp = one.query.get("timestamp", "0")
            mac = hmac.new(secret.encode(), f"{stamp}\n{secret}".encode(), hashlib.sha256).digest()
            if (
                abs(time.time() * 1000 - int(stamp)) > 3_600_000
                or one.query.get("sign") != base64.b64encode(mac).decode()
            ):
                return 200, {"errcode": 310000, "errmsg": "sign not match"}
        if one.body.get("msgtype") != "text" or not one.body["text"]["content"]:
            return 200, {"errcode": 40035, "errmsg": "invalid parameter"}
        return 200, {"errcode": 0, "errmsg": "ok"}

    return judge


def wecom(one: Received) -> tuple[int, Any]:
    """93000: an unknown key. 40058: longer than 2048 bytes."""
    if one.query.get("key") != "known-key":
        return 200, {"errcode": 93000, "errmsg": "invalid webhook url"}
    if one.body.get("msgtype") != "text" or len(one.body["text"]["content"].encode()) > 2048:
        return 200, {"errcode": 40058, "errmsg": "text.content exceed max length 2048"}
    return 200, {"errcode": 0, "errmsg": "ok"}


def slack(one: Received) -> tuple[int, Any]:
    if one.path != "/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ":
        return 403, b"invalid_token"
    return (200, b"ok") if one.body.get("text") or one.body.get("attachments") else (400, b"no_text")


def teams(one: Received) -> tuple[int, Any]:
    [card] = one.body["attachments"]
    good = card["contentType"] == "application/vnd.microsoft.card.adaptive" and one.query.get("sig") == "SIGNATURE-1"
    return (202, b"") if good else (401, {"error": {"code": "AuthorizationFailed"}})


class Mailbox:
    """A small SMTP server that keeps mails."""

    def __init__(self) -> None:
        self.mails = list[Any]()
        self.refuses = False
        outer = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.say("220 stand-in")
                while line := self.rfile.readline():
                    word = line.split(b" ")[0].strip().upper()
                    if word == b"DATA":
                        self.say("354 go on")
                        self.keep()
                    elif word == b"QUIT":
                        self.say("221 bye")
                        return
                    else:
                        self.say("550 no" if outer.refuses and word == b"RCPT" else "250 ok")

            def keep(self) -> None:
                lines = list[bytes]()
                while (line := self.rfile.readline()) != b".\r\n":
                    lines.append(line.removeprefix(b"."))
                outer.mails.append(message_from_bytes(b"".join(lines), policy=policy.default))
                self.say("250 taken")

            def say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]


@contextmanager
def mailbox():
    box = Mailbox()
    threading.Thread(target=box._server.serve_forever, args=(0.01,), daemon=True).start()
    yield box
    box._server.shutdown()
    box._server.server_close()
