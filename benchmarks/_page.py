"""Stands for an open page: a separate process that reads and decodes every telemetry frame.

python benchmarks/_page.py URL DEPLOYMENT < TOKEN      runs until its input ends, then prints what it received as JSON
"""

import json
import sys
import threading

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect


def main() -> None:
    url, deployment = sys.argv[1:]
    token = sys.stdin.readline().strip()
    address = f"ws{url.removeprefix('http')}/ws/v1/telemetry?deployment={deployment}"
    frames = events = dropped = size = 0
    with connect(address, additional_headers={"Authorization": f"Bearer {token}"}, max_size=None) as socket:
        print("open", flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), socket.close()), daemon=True).start()
        try:
            for text in socket:
                frame = json.loads(text)
                frames, size = frames + 1, size + len(text)
                events += len(frame.get("events", ()))
                dropped += frame["count"] if frame["type"] == "dropped" else 0
        except ConnectionClosed:
            pass
    print(json.dumps({"frames": frames, "events": events, "bytes": size, "dropped": dropped}), flush=True)


if __name__ == "__main__":
    main()
