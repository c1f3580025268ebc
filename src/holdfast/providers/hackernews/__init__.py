"""Hacker News: the public API (Firebase v0), and sign-in on the site itself."""

from holdfast.providers.hackernews.client import API_URL, SITE_URL, HackerNewsApi, HackerNewsSite
from holdfast.providers.hackernews.types import Item, StoryList

__all__ = ["API_URL", "SITE_URL", "HackerNewsApi", "HackerNewsSite", "Item", "StoryList"]
