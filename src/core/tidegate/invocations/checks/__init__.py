"""How `tidegate.invocations` is checked: laws, scenarios, planted bugs and strategies."""
