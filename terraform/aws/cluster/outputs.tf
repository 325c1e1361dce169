output "id" {
  description = "Id of the cluster."
  value       = var.cluster_id
}

output "bucket" {
  description = "Name of the bucket, once it is as it should be."
  value       = aws_s3_bucket.cluster.bucket

  depends_on = [
    aws_s3_bucket_lifecycle_configuration.cluster,
    aws_s3_bucket_ownership_controls.cluster,
    aws_s3_bucket_policy.cluster,
    aws_s3_bucket_public_access_block.cluster,
    aws_s3_bucket_server_side_encryption_configuration.cluster,
    aws_s3_bucket_versioning.cluster,
  ]
}

output "encryption_key_arn" {
  description = "ARN of the secret that is the encryption key."
  value       = var.encryption_key.create ? one(module.key[*].arn) : var.encryption_key.arn
}
