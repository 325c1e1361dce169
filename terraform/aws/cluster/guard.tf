# A destroy reaches this first. Everything that protects the bucket depends on the bucket, and would be deleted before the bucket's
# deletion is refused. The guard depends on all of it, and through the bucket on the key, so it fails before anything is deleted.
resource "terraform_data" "guard" {
  input = { bucket = local.bucket, deletion_protection = var.deletion_protection }

  # A destroy only knows the state, so the input keeps the setting there. The command is one line that sh and cmd.exe can run.
  provisioner "local-exec" {
    when = destroy
    command = !self.input.deletion_protection ? "echo ${self.input.bucket} may be deleted" : join(" && ", [
      "echo ${self.input.bucket} and its encryption key are protected: to delete them apply deletion_protection = false before",
      "exit 1",
    ])
  }

  depends_on = [
    aws_s3_bucket_lifecycle_configuration.cluster,
    aws_s3_bucket_ownership_controls.cluster,
    aws_s3_bucket_policy.cluster,
    aws_s3_bucket_public_access_block.cluster,
    aws_s3_bucket_server_side_encryption_configuration.cluster,
    aws_s3_bucket_versioning.cluster,
  ]
}
