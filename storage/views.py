"""The views, which the migrations make, as SQLAlchemy Core sees them: history for people who read SQL."""

from sqlalchemy import Column, Float, Integer, MetaData, String, Table, Text

from foltr.core.aggregation.fates import Fate
from foltr.core.protocol.states import Pacing, RoundState
from foltr.storage.schema import Member, UtcDateTime, in_words

# Apart from the tables' metadata, so that nothing tries to create them as tables.
views = MetaData()

round_history = Table(
    "round_history",
    views,
    Column("federation", String, comment="The federation"),
    Column("round", Integer, comment="Number, from 1"),
    Column("state", Member(RoundState), comment=in_words(RoundState)),
    Column("reason", Text, comment="Why it was abandoned; null otherwise"),
    Column("opened_at", UtcDateTime, comment="When it opened"),
    Column("closed_at", UtcDateTime, comment="When it ended; null while open"),
    Column("duration_s", Float, comment="Seconds from opening to closing; null while open"),
    Column("base_version", Integer, comment="The model it trained from"),
    Column("model_version", Integer, comment="The model it made; null unless completed"),
    Column("n_updates", Integer, comment="Updates of the round that are stored now"),
    Column("n_interactions", Integer, comment="Interactions behind those updates"),
    Column("n_rejected", Integer, comment="Updates refused that named this round"),
    Column("min_clients", Integer, comment="Quorum"),
    Column("max_clients", Integer, comment="It took at most so many updates"),
    Column("min_time_s", Float, comment="It did not end before this age, in seconds"),
    Column("max_time_s", Float, comment="Deadline in seconds after opening"),
    Column("pacing", Member(Pacing), comment=in_words(Pacing)),
    Column("n_selected", Integer, comment="Clients asked; null: all"),
    Column("n_eligible", Integer, comment="Clients online when it opened; null unless some were selected"),
    Column("aggregation", String, comment="Rule it was opened with"),
    Column("byzantine", Float, comment="Hostile clients that was to withstand: a count, or a share below 0.5"),
    Column("aggregation_parameters", Text, comment="Its parameters, JSON"),
    Column("aggregation_fallback", String, comment="Rule where too few arrive for it, or abandon"),
    Column("rule", String, comment="Rule that made its model; null unless completed"),
    Column("fallback_reason", Text, comment="Why that is not the rule it was opened with; null if it is"),
    Column("n_clipped", Integer, comment="Updates the rule shortened"),
    Column("n_dropped", Integer, comment="Updates the rule left out"),
    Column("anchor_version", Integer, comment="The model that devices compared the newest with; null: none"),
    Column("n_worse", Integer, comment="Its updates that came with the vote worse"),
    Column("n_none", Integer, comment="Its updates that came with the vote none"),
    Column("n_better", Integer, comment="Its updates that came with the vote better"),
    Column("tally_n_updates", Integer, comment="Updates in its secure sums, where these have votes; null: none"),
    Column("tally_worse", Float, comment="Votes worse among them, with the helpers' noise"),
    Column("tally_better", Float, comment="Votes better among them, likewise"),
    Column("tally_deviation", Float, comment="Standard deviation of the noise in each, in votes"),
    Column("n_evaluations", Integer, comment="Its updates that say how it does; of secure sums all updates in them"),
    Column("clicked", Float, comment="Mean share of their lists with a click; null: nobody was asked"),
    Column("reward", Float, comment="Mean reciprocal rank of the first click, in lists as shown; null likewise"),
    Column("base_reward", Float, comment="Mean reciprocal rank of these clicks in the base order; null likewise"),
    Column("evaluation_deviation", Float, comment="Standard deviation of the noise in each mean; null: none is added"),
    comment="Every round with what it collected, what it refused and how it ended",
)

client_history = Table(
    "client_history",
    views,
    Column("federation", String, comment="The federation"),
    Column("client_id", String, comment="The client"),
    Column("round", Integer, comment="The round it contributed to"),
    Column("update_id", String, comment="The update, as the client named it"),
    Column("n_interactions", Integer, comment="Interactions behind the update"),
    Column("n_bytes", Integer, comment="Length of the update as sent"),
    Column("received_at", UtcDateTime, comment="When it was accepted"),
    Column("base_version", Integer, comment="The model the client trained from"),
    Column("round_state", Member(RoundState), comment="State of the round"),
    Column("model_version", Integer, comment="The model the update went into; null unless the round completed"),
    Column("fate", Member(Fate), comment=f"What the rule made of it: {in_words(Fate)}; null without a rule"),
    Column("share", Float, comment="How much of the model's step is this update's, 0 to 1"),
    Column("score", Float, comment="What the rule decided by"),
    Column("fate_reason", Text, comment="Why it was clipped or dropped; empty if it was kept"),
    Column("body", Text, comment="What is stored of the update: plain, sealed or deleted (its round was thinned)"),
    comment="What every client contributed to every round",
)

event_history = Table(
    "event_history",
    views,
    Column("id", Integer, comment="Order of recording"),
    Column("federation", String, comment="The federation"),
    Column("at", UtcDateTime, comment="When it happened"),
    Column("kind", String, comment="What happened"),
    Column("code", String, comment="Reason code of the receipt"),
    Column("client_id", String, comment="The client as the message named it; null: none"),
    Column("round", Integer, comment="The round as the message named it"),
    Column("detail", Text, comment="What a person needs to know; no name of a client"),
    Column("n", Integer, comment="How often, within one batch of messages"),
    comment="What was refused, who came and who left, by name",
)
