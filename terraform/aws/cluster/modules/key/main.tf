# Made anew by every plan and apply, and forgotten with it: no state and no plan file has it.
# What is kept is the one that was written when the version below was made.
ephemeral "aws_secretsmanager_random_password" "key" {
  password_length     = 32
  exclude_punctuation = true
  include_space       = false
}

resource "aws_secretsmanager_secret" "key" {
  name                    = var.name
  description             = "Nstance: seals the secrets of a cluster. Without it no server starts and no identity can be kept."
  kms_key_id              = var.kms_key_arn
  recovery_window_in_days = var.recovery_window_days
  tags                    = var.tags
}

resource "aws_secretsmanager_secret_version" "key" {
  secret_id        = aws_secretsmanager_secret.key.id
  secret_string_wo = ephemeral.aws_secretsmanager_random_password.key.random_password

  # Never raised: another key would open nothing of what the first one sealed.
  secret_string_wo_version = 1
}
