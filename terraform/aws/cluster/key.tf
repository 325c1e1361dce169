# In a module of its own: no test can mock what is ephemeral, but every test can leave this out.
module "key" {
  source = "./modules/key"
  count  = var.encryption_key.create ? 1 : 0

  name                 = coalesce(var.encryption_key.name, "nstance/${var.cluster_id}/encryption-key")
  kms_key_arn          = var.kms_key_arn
  recovery_window_days = var.encryption_key.recovery_window_days
  tags                 = local.tags
}
