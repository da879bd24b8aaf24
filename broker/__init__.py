"""The one place that knows MQTT."""
