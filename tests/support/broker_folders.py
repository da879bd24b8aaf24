"""The two folders of one broker of a test, and how they are written."""

import os
import pwd
from dataclasses import replace
from pathlib import Path

from foltr.broker.broker_records import Mode
from foltr.broker.mosquitto import MosquittoSettings
from foltr.broker.provision import provision_broker

ME = pwd.getpwuid(os.geteuid()).pw_name
HOSTS = ("localhost", "127.0.0.1")


class Folders:
    def __init__(self, home: Path) -> None:
        self.broker, self.operator = home / "broker", home / "operator"

    def provision(self, mode="passwords", hosts=HOSTS, federation="fed", force=False, **changes):
        settings = MosquittoSettings(self.broker, self.broker / "data", port=8883, mode=Mode(mode), user=ME)
        settings = replace(settings, federation=federation, **changes)
        return provision_broker(self.operator, settings, hosts=hosts, force=force)

    def contents(self):
        files = [path for folder in (self.broker, self.operator) for path in folder.rglob("*") if path.is_file()]
        return {
            path.name if path.parent == self.broker else f"operator/{path.name}": path.read_text(errors="replace")
            for path in files
        }
