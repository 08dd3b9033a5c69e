"""How `tidegate.pipeline` is checked: laws, scenarios, planted bugs and strategies."""
