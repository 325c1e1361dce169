# A separate module, which tests can leave out: they can't mock ephemeral values.
module "key" {
  source = "./modules/key"
  count  = var.create_encryption_key ? 1 : 0

  name                 = coalesce(var.encryption_key_name, "nstance/${var.cluster_id}/encryption-key")
  kms_key_arn          = var.kms_key_arn
  recovery_window_days = var.encryption_key_recovery_window_days
  tags                 = local.tags
}
