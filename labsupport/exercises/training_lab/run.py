"""The run of the lab whose numbers the exercises of chapter 13 ask for."""

from labsupport.training import Settings

SETTINGS = Settings()
MODEL = SETTINGS.model
