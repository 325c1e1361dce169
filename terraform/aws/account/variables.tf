variable "cluster_id" {
  type        = string
  description = "Id of the cluster. The roles may touch what is tagged with it, and nothing else."
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
  description = "ARN of the secret that is the cluster's encryption key."
  nullable    = false

  validation {
    condition     = can(regex("^arn:[a-z-]+:(secretsmanager|ssm):", var.encryption_key_arn))
    error_message = "encryption_key_arn: want the ARN of a secret (arn:aws:secretsmanager:...) or of a parameter (arn:aws:ssm:...)"
  }
}

variable "kms_key" {
  type        = object({ arn = string })
  description = <<-EOT
    A KMS key that servers may use, for the bucket, the secret and the volumes of instances. null: none. The key's own policy has to
    let the account's roles use it.
  EOT
  default     = null

  validation {
    condition     = var.kms_key == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]+:key/", var.kms_key.arn))
    error_message = "kms_key.arn: want the ARN of a KMS key, such as arn:aws:kms:eu-central-1:123456789012:key/0f1e2d3c"
  }
}

variable "secret_prefixes" {
  type = object({
    secrets_manager = optional(string)
    parameter_store = optional(string)
    region          = optional(string)
  })
  description = <<-EOT
    What the names of secrets begin with that servers may make and read, where the config's `cluster.secrets.provider` is
    `aws-secrets-manager` or `aws-parameter-store`: its `prefix`, without a slash in front. `region` is as in the config, too; null:
    the provider's.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([
      for p in [var.secret_prefixes.secrets_manager, var.secret_prefixes.parameter_store] :
      p == null || can(regex("^([A-Za-z0-9_.-]+/)+$", p))
    ])
    error_message = "secret_prefixes: want paths that end in /, such as nstance/example/, and no slash in front"
  }

  validation {
    condition     = var.secret_prefixes.region == null || can(regex("^[a-z0-9-]+$", var.secret_prefixes.region))
    error_message = "secret_prefixes.region: want an AWS region, such as eu-central-1"
  }
}

variable "name_prefix" {
  type        = string
  description = "What the names of roles and profiles begin with. null: `nstance-{cluster_id}`. They are the account's, not the region's."
  default     = null

  validation {
    condition     = var.name_prefix == null || can(regex("^[A-Za-z0-9+=,.@_-]{1,57}$", var.name_prefix))
    error_message = "name_prefix: want 1 to 57 letters, digits and characters of +=,.@_-"
  }
}

variable "path" {
  type        = string
  description = "Path of roles and profiles."
  default     = "/"
  nullable    = false

  validation {
    condition     = can(regex("^/([A-Za-z0-9+=,.@_-]+/)*$", var.path))
    error_message = "path: want one that begins and ends with /, such as /nstance/"
  }
}

variable "permissions_boundary_arn" {
  type        = string
  description = "ARN of the policy that bounds what the roles may ever do. null: none."
  default     = null

  validation {
    condition     = var.permissions_boundary_arn == null || can(regex("^arn:[a-z-]+:iam::[0-9a-z]*:policy/", var.permissions_boundary_arn))
    error_message = "permissions_boundary_arn: want the ARN of a policy, such as arn:aws:iam::123456789012:policy/bounds"
  }
}

variable "tags" {
  type        = map(string)
  description = "Tags of everything that is made here."
  default     = {}
  nullable    = false
}
