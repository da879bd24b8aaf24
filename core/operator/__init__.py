"""The operator's side of identity: the folder with the enrolment key, and the credentials it issues."""
