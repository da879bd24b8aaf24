"""The web page. It shows what the API serves, and all its templates and files are local."""
