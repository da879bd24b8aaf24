"""Simulated devices as real MQTT peers: many per process, honest or colluding, each with a clicking user."""
