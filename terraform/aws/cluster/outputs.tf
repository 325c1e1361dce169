output "id" {
  description = "ID of the cluster."
  value       = var.cluster_id
}

output "bucket" {
  description = "Name of the bucket. Available once the bucket is fully configured."
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
  description = "ARN of the secret or parameter that holds the encryption key."
  value       = var.create_encryption_key ? one(module.key[*].arn) : var.encryption_key_arn
}
