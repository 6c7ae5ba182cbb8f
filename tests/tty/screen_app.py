"""Run the screen on a script of frames in a real terminal: `screen_app.py [options]`, see --help.

Also a quick way to look at the screen without a training: `--tick 1 --frames 600`.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))

from fake import BROKEN, MEMORY, PLAIN, FakeControls, Story

from ascend_tui.app import MonitorApp


def main() -> int:
    """Deliver the frames, then wait to be told to end; write what was asked to --log."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--before", type=int, default=200, help="ticks that passed before the screen came up")
    parser.add_argument("--tick", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--device", default="npu:0")
    parser.add_argument("--plugins", type=int, default=1)
    parser.add_argument("--theme", default="ansi-dark")
    parser.add_argument("--language", default="en")
    parser.add_argument("--same", action="store_true", help="deliver one and the same frame")
    parser.add_argument("--hold", type=float, default=0.0, help="seconds before the second frame")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--screen", type=Path, help="where to write the screen as text after the last frame")
    options = parser.parse_args()

    controls, story = FakeControls(), Story(options.device, options.steps)
    plugins = [MEMORY, *PLAIN, BROKEN][: options.plugins]
    app = MonitorApp(controls, plugins, theme=options.theme, language=options.language)
    first = story.forward(options.before)

    def deliver() -> None:
        while controls.deliver is None:
            time.sleep(0.01)
        controls.deliver(first)
        time.sleep(options.hold)
        for _ in range(options.frames):
            time.sleep(options.tick)
            controls.deliver(first if options.same else story.forward())
        time.sleep(0.3)
        if options.screen:
            app.call_from_thread(_write_screen, app, options.screen)

    threading.Thread(target=deliver, daemon=True).start()
    app.run()
    if options.log:
        options.log.write_text("\n".join(map(repr, controls.asked)))
    for line in app.farewell:
        print(line)
    return app.return_code or 0


def _write_screen(app: MonitorApp, path: Path) -> None:
    strips = app.screen._compositor.render_strips()
    partial = path.with_suffix(".part")
    partial.write_text("\n".join(strip.text.rstrip() for strip in strips))
    os.replace(partial, path)


if __name__ == "__main__":
    sys.exit(main())
