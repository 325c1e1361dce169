# What all shards of a cluster share: the bucket, and the key that seals the secrets in it.

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

locals {
  bucket = coalesce(var.bucket, "nstance-${var.cluster_id}-${data.aws_caller_identity.current.account_id}")
  tags   = merge(var.tags, { "nstance:cluster-id" = var.cluster_id })
}

resource "aws_s3_bucket" "cluster" {
  bucket        = local.bucket
  force_destroy = !var.deletion_protection
  tags          = local.tags

  # A destroy deletes the key only after the bucket, since without the key the secrets in the bucket can't be decrypted.
  depends_on = [module.key]
}

resource "aws_s3_bucket_public_access_block" "cluster" {
  bucket                  = aws_s3_bucket.cluster.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "cluster" {
  bucket = aws_s3_bucket.cluster.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "cluster" {
  bucket = aws_s3_bucket.cluster.id

  rule {
    # One data key encrypts many objects; otherwise each write of a leader would cost a KMS call.
    bucket_key_enabled = var.kms_key_arn != null

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_versioning" "cluster" {
  bucket = aws_s3_bucket.cluster.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "cluster" {
  bucket = aws_s3_bucket.cluster.id

  # A leader renews its lease every ten seconds, and each renewal leaves a previous version.
  rule {
    id     = "expire-former-versions"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }

    # The delete marker remains after the last version of a deleted object has expired.
    expiration {
      expired_object_delete_marker = true
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }

  depends_on = [aws_s3_bucket_versioning.cluster]
}
