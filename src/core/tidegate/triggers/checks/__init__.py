"""How `tidegate.triggers` is checked: laws, scenarios, planted bugs and strategies."""
