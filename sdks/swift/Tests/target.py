"""A target that says "from afar", for the example of policies. Its model `half` breaks off. It prints its port, and ends with its input."""

import http.server
import json
import sys
import threading
import time


class Target(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        choices = [({"role": "assistant", "content": "from afar"}, None), ({}, "stop")]
        events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in choices]
        events.append({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}})
        if asked["model"] == "half":
            event = {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Half an answer"}}]}
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.2)
            self.close_connection = True
            return
        body = "".join(f"data: {json.dumps({'id': '1', 'object': 'chat.completion.chunk', **event})}\n\n" for event in events)
        body = (body + "data: [DONE]\n\n").encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Target)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
