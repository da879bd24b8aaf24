"""Simulated devices as real MQTT peers: many in a process, honest or colluding, each with a user who clicks."""
