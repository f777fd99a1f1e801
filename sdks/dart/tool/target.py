"""A target for the example of policies and for overhead.dart: answers every request as the API of OpenAI does. Prints its address.

    python3 target.py [PIECES MILLISECONDS]     so many pieces of text, with so much time between them
"""

import http.server
import json
import sys
import time

COUNT, PAUSE = (int(sys.argv[1]), int(sys.argv[2]) / 1000) if len(sys.argv) > 2 else (1, 0.0)
HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
TEXT = "from afar" if COUNT == 1 else " word"
PIECE = {"choices": [{"index": 0, "delta": {"content": TEXT}, "finish_reason": None}]}
END = [
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}},
]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for _ in range(COUNT):
            self._say(json.dumps({**HEAD, **PIECE}))
            time.sleep(PAUSE)
        for piece in END:
            self._say(json.dumps({**HEAD, **piece}))
        self._say("[DONE]")

    def _say(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_address[1]}/v1#m", flush=True)
server.serve_forever()
