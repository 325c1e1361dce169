# What a destroy meets first. Everything that protects the bucket depends on the bucket, and so would be gone before the bucket
# refuses; this depends on all of it, and through the bucket on the key, and refuses while everything is still there.
resource "terraform_data" "guard" {
  input = { bucket = local.bucket, deletion_protection = var.deletion_protection }

  # A destroy knows the state only, so that is where it finds whether it may go on. One line for sh and for cmd.exe.
  provisioner "local-exec" {
    when = destroy
    command = !self.input.deletion_protection ? "echo ${self.input.bucket} may be deleted" : join(" && ", [
      "echo ${self.input.bucket} and its encryption key stay: to delete them apply deletion_protection = false before",
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
