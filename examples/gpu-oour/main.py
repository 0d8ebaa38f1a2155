"""gpu-oour's `main:app` and `python main.py`, on vgpuscope. Settings: config.yaml in this folder, and variables."""

import os

import uvicorn

from vgpuscope.asgi import app

if __name__ == "__main__":
    host, port = os.environ.get("HOST", "0.0.0.0"), int(os.environ.get("PORT", "8080"))  # noqa: S104 - as gpu-oour
    uvicorn.run(app, host=host, port=port)
