# What tflint asks of the modules: everything that its own rules know.
plugin "terraform" {
  enabled = true
  preset  = "all"
}

# Versions are pinned by the module's caller.
rule "terraform_module_version" {
  enabled = false
}

# Files are named for what they hold.
rule "terraform_standard_module_structure" {
  enabled = false
}
