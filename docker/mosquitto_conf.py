"""Rewrites docker/mosquitto.conf after a change of the generator: ``python docker/mosquitto_conf.py``."""

from pathlib import Path

from foltr.broker.broker_records import CONFIG_NAME
from foltr.broker.mosquitto import MosquittoSettings, mosquitto_config

SETTINGS = MosquittoSettings(
    folder=Path("/mosquitto/config"),
    data_dir=Path("/mosquitto/data"),  # a volume of the image eclipse-mosquitto
    listen="0.0.0.0",  # noqa: S104 (inside a container; compose.yaml publishes no port of it)
    allow_anonymous_network=True,
)

if __name__ == "__main__":
    Path(__file__).with_name(CONFIG_NAME).write_text(mosquitto_config(SETTINGS), encoding="utf-8")
