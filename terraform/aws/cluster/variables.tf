variable "cluster_id" {
  type        = string
  description = "ID of the cluster. It is part of every certificate and tag, so it can't be changed later."
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", var.cluster_id)) && length(var.cluster_id) <= 32
    error_message = "cluster_id: want lowercase letters, digits and single inner hyphens, at most 32 characters"
  }
}

variable "bucket" {
  type        = string
  description = "Name of the bucket. `null` means `nstance-{cluster_id}-{account}`, with the number of the AWS account."
  default     = null

  validation {
    condition     = var.bucket == null || can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "bucket: want 3 to 63 lowercase letters, digits, dots and hyphens"
  }
}

variable "create_encryption_key" {
  type        = bool
  description = <<-EOT
    Whether to create the encryption key, which seals the cluster's secrets: a secret of 32 characters in Secrets Manager, whose value is
    in no plan and no state. If `false`, set `encryption_key_arn`.
  EOT
  default     = true
  nullable    = false
}

variable "encryption_key_name" {
  type        = string
  description = "Name of the secret of the created encryption key. `null` means `nstance/{cluster_id}/encryption-key`."
  default     = null

  validation {
    condition     = var.encryption_key_name == null || can(regex("^[A-Za-z0-9/_+=.@-]{1,512}$", var.encryption_key_name))
    error_message = "encryption_key_name: want 1 to 512 letters, digits and characters of /_+=.@-"
  }
}

variable "encryption_key_recovery_window_days" {
  type        = number
  description = "Days for which the created encryption key can be restored after it was deleted: 7 to 30, or 0 to delete it at once."
  default     = 30
  nullable    = false

  validation {
    condition = (
      var.encryption_key_recovery_window_days == 0 ||
      (var.encryption_key_recovery_window_days >= 7 && var.encryption_key_recovery_window_days <= 30)
    )
    error_message = "encryption_key_recovery_window_days: want 0, or 7 to 30"
  }
}

variable "encryption_key_arn" {
  type        = string
  description = "ARN of your own encryption key, a secret or parameter of exactly 32 bytes. Use it with `create_encryption_key = false`."
  default     = null

  validation {
    condition     = (var.encryption_key_arn == null) == var.create_encryption_key
    error_message = "encryption_key_arn: want create_encryption_key = false together with the ARN of your own key, or neither"
  }
  validation {
    condition     = var.encryption_key_arn == null || can(regex("^arn:[a-z-]+:(secretsmanager|ssm):", var.encryption_key_arn))
    error_message = "encryption_key_arn: want the ARN of a secret (arn:aws:secretsmanager:...) or of a parameter (arn:aws:ssm:...)"
  }
}

variable "kms_key_arn" {
  type        = string
  description = <<-EOT
    ARN of the KMS key that encrypts the bucket and the secret of the created encryption key. Pass it to the module `account` too. `null`
    means S3's own keys (SSE-S3) for the bucket, and the account's default key of Secrets Manager for the secret.
  EOT
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "kms_key_arn: want the ARN of a KMS key, such as arn:aws:kms:eu-central-1:123456789012:key/0f1e2d3c"
  }
}

variable "noncurrent_days" {
  type        = number
  description = "Days for which previous versions of objects are kept. Each shard's leader writes some 8,640 of them a day."
  default     = 7
  nullable    = false

  validation {
    condition     = var.noncurrent_days >= 1 && var.noncurrent_days <= 365 && floor(var.noncurrent_days) == var.noncurrent_days
    error_message = "noncurrent_days: want a whole number from 1 to 365"
  }
}

variable "deletion_protection" {
  type        = bool
  description = <<-EOT
    Protects the bucket and the key: the bucket's policy denies `s3:DeleteBucket` to all principals, and a destroy fails before it
    deletes anything of this module. Applying `false` first makes a destroy delete the bucket with all objects in it.
  EOT
  default     = true
  nullable    = false
}

variable "tags" {
  type        = map(string)
  description = "Tags for all resources of this module."
  default     = {}
  nullable    = false
}
