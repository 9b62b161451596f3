"""The JMAP peer's switches by the server whose ways it then has."""

SWITCHES = {
    "plain": ("relative_urls=true",),
    "james": (
        *("needs_version=true", "other_order=true", "query_limit=2", "no_unread_import=true"),
        *("moved_is_created=true", "ignores_if_in_state=true"),
        *("relative_urls=true", "maxObjectsInGet=60", "maxObjectsInSet=2"),
    ),
    "cyrus": (*("relative_urls=true", 'mailboxes=[["Inbox","inbox"]]', 'push_types=["Email"]', "content_ids=true"),),
    "cyrus-3.6": (
        *('mailboxes=[["Inbox","inbox"]]', "content_ids=true", "push=false"),
        *("identity_without_address=true", "import_without_states=true"),
    ),
}
