variable "cluster_id" {
  type        = string
  description = "ID of the cluster. Servers can only change resources that are tagged with it."
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", var.cluster_id)) && length(var.cluster_id) <= 32
    error_message = "cluster_id: want lowercase letters, digits and single inner hyphens, at most 32 characters"
  }
}

variable "bucket" {
  type        = string
  description = "Name of the cluster's bucket."
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "bucket: want 3 to 63 lowercase letters, digits, dots and hyphens"
  }
}

variable "encryption_key_arn" {
  type        = string
  description = "ARN of the secret or parameter that holds the cluster's encryption key."
  nullable    = false

  validation {
    condition     = can(regex("^arn:[a-z-]+:(secretsmanager|ssm):", var.encryption_key_arn))
    error_message = "encryption_key_arn: want the ARN of a secret (arn:aws:secretsmanager:...) or of a parameter (arn:aws:ssm:...)"
  }
}

variable "kms_key_arn" {
  type        = string
  description = <<-EOT
    ARN of a KMS key that servers may use: for the bucket, the secret and the volumes of instances. The key's own policy must let roles
    of the account use it. `null` means none.
  EOT
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]+:key/", var.kms_key_arn))
    error_message = "kms_key_arn: want the ARN of a KMS key, such as arn:aws:kms:eu-central-1:123456789012:key/0f1e2d3c"
  }
}

variable "secrets_manager_prefix" {
  type        = string
  description = <<-EOT
    Prefix of the secrets that servers may create and read in Secrets Manager. If `cluster.secrets.provider` in the config is
    `aws-secrets-manager`, set it to the `prefix` there, without a leading slash. `null` means no access.
  EOT
  default     = null

  validation {
    condition     = var.secrets_manager_prefix == null || can(regex("^([A-Za-z0-9_.-]+/)+$", var.secrets_manager_prefix))
    error_message = "secrets_manager_prefix: want a path that ends in /, such as nstance/example/, and no slash in front"
  }
}

variable "parameter_store_prefix" {
  type        = string
  description = <<-EOT
    Prefix of the secrets that servers may create and read in Parameter Store. If `cluster.secrets.provider` in the config is
    `aws-parameter-store`, set it to the `prefix` there, without a leading slash. `null` means no access.
  EOT
  default     = null

  validation {
    condition     = var.parameter_store_prefix == null || can(regex("^([A-Za-z0-9_.-]+/)+$", var.parameter_store_prefix))
    error_message = "parameter_store_prefix: want a path that ends in /, such as nstance/example/, and no slash in front"
  }
}

variable "secrets_region" {
  type        = string
  description = "Region of these secrets, `cluster.secrets.region` in the config. `null` means the region of the AWS provider."
  default     = null

  validation {
    condition     = var.secrets_region == null || can(regex("^[a-z0-9-]+$", var.secrets_region))
    error_message = "secrets_region: want an AWS region, such as eu-central-1"
  }
}

variable "allow_snapshots" {
  type        = bool
  description = <<-EOT
    Whether `args` of templates may create volumes from snapshots (`BlockDeviceMappings` with a `SnapshotId`). Only snapshots tagged
    `nstance:cluster-id` with the cluster's ID are allowed.
  EOT
  default     = false
  nullable    = false
}

variable "name_prefix" {
  type        = string
  description = "Prefix of the names of roles and profiles, which must be unique in the account. `null` means `nstance-{cluster_id}`."
  default     = null

  validation {
    condition     = var.name_prefix == null || can(regex("^[A-Za-z0-9+=,.@_-]{1,57}$", var.name_prefix))
    error_message = "name_prefix: want 1 to 57 letters, digits and characters of +=,.@_-"
  }
}

variable "path" {
  type        = string
  description = "IAM path of roles and profiles."
  default     = "/"
  nullable    = false

  validation {
    condition     = can(regex("^/([A-Za-z0-9+=,.@_-]+/)*$", var.path))
    error_message = "path: want one that begins and ends with /, such as /nstance/"
  }
}

variable "permissions_boundary_arn" {
  type        = string
  description = "ARN of the permissions boundary of the roles. `null` means none."
  default     = null

  validation {
    condition     = var.permissions_boundary_arn == null || can(regex("^arn:[a-z-]+:iam::[0-9a-z]*:policy/", var.permissions_boundary_arn))
    error_message = "permissions_boundary_arn: want the ARN of a policy, such as arn:aws:iam::123456789012:policy/bounds"
  }
}

variable "tags" {
  type        = map(string)
  description = "Tags for all resources of this module."
  default     = {}
  nullable    = false
}
