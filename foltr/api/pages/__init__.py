"""The page shows people what the API has, with templates and files of its own and nothing from elsewhere."""
