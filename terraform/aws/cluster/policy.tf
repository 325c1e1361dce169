locals {
  bucket_arn = "arn:${data.aws_partition.current.partition}:s3:::${local.bucket}"

  deny_plain_http = {
    Sid       = "DenyWithoutTLS"
    Effect    = "Deny"
    Principal = "*"
    Action    = "s3:*"
    Resource  = [local.bucket_arn, "${local.bucket_arn}/*"]
    Condition = { Bool = { "aws:SecureTransport" = "false" } }
  }

  # prevent_destroy can't depend on a variable, so S3 refuses the deletion.
  deny_deletion = {
    Sid       = "DenyDeletion"
    Effect    = "Deny"
    Principal = "*"
    Action    = "s3:DeleteBucket"
    Resource  = local.bucket_arn
  }
}

resource "aws_s3_bucket_policy" "cluster" {
  bucket = aws_s3_bucket.cluster.id

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = concat([local.deny_plain_http], [for s in [local.deny_deletion] : s if var.deletion_protection])
  })

  # S3 refuses concurrent changes of a bucket's access settings.
  depends_on = [aws_s3_bucket_public_access_block.cluster]
}
