# Every plan and apply generates a new one and stores it neither in the state nor in a plan. The secret keeps the value that was
# written when its version below was created.
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

  # Never raised: another key could decrypt nothing that the first one encrypted.
  secret_string_wo_version = 1
}
