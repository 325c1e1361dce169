variable "cluster_id" {
  type        = string
  description = "Id of the cluster: part of every certificate and tag, so it can't be changed later."
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", var.cluster_id)) && length(var.cluster_id) <= 32
    error_message = "cluster_id: want lowercase letters, digits and single inner hyphens, at most 32 characters"
  }
}

variable "bucket_name" {
  type        = string
  description = "Name of the bucket. null: `nstance-{cluster_id}-{account}`."
  default     = null

  validation {
    condition     = var.bucket_name == null || can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket_name))
    error_message = "bucket_name: want 3 to 63 lowercase letters, digits, dots and hyphens"
  }
}

variable "encryption_key" {
  type = object({
    create               = optional(bool, true)
    name                 = optional(string)
    recovery_window_days = optional(number, 30)
    arn                  = optional(string)
  })
  description = <<-EOT
    The key that seals the cluster's secrets. By default one is made: 32 characters in Secrets Manager, which never enter a plan or a
    state, called `name` (`nstance/{cluster_id}/encryption-key` unless set), and restorable for `recovery_window_days` after it was
    deleted. With `create = false` none is made, and `arn` names a secret or parameter of your own that holds exactly 32 bytes.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = var.encryption_key.create == (var.encryption_key.arn == null)
    error_message = "encryption_key: want create = false together with the arn of a key of yours, or neither"
  }
  validation {
    condition     = var.encryption_key.arn == null || can(regex("^arn:[a-z-]+:(secretsmanager|ssm):", var.encryption_key.arn))
    error_message = "encryption_key.arn: want the ARN of a secret (arn:aws:secretsmanager:...) or of a parameter (arn:aws:ssm:...)"
  }
}

variable "kms_key_arn" {
  type        = string
  description = <<-EOT
    ARN of a KMS key that encrypts the bucket and the key's secret. null: S3's own keys (SSE-S3), and the account's own for Secrets
    Manager. The module `account` has to know it too.
  EOT
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "kms_key_arn: want the ARN of a KMS key, such as arn:aws:kms:eu-central-1:123456789012:key/0f1e2d3c"
  }
}

variable "noncurrent_days" {
  type        = number
  description = "Days that former versions of objects are kept. A leader writes some 8,640 of them a day and shard."
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
    Keep the bucket and the key: the bucket's policy denies s3:DeleteBucket to everybody, and a destroy fails before it has taken
    anything of the module away. `false`, applied before the destroy, has it delete the bucket with all that is in it.
  EOT
  default     = true
  nullable    = false
}

variable "tags" {
  type        = map(string)
  description = "Tags of everything that is made here."
  default     = {}
  nullable    = false
}
