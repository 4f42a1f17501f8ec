"""OpenStack, through openstacksdk."""
