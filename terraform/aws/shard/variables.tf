variable "cluster_id" {
  type        = string
  description = "ID of the cluster: `module.cluster.id`."
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", var.cluster_id)) && length(var.cluster_id) <= 32
    error_message = "cluster_id: want lowercase letters, digits and single inner hyphens, at most 32 characters"
  }
}

variable "bucket" {
  type        = string
  description = "Name of the cluster's bucket: `module.cluster.bucket`."
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "bucket: want 3 to 63 lowercase letters, digits, dots and hyphens"
  }
}

variable "encryption_key_arn" {
  type        = string
  description = "ARN of the secret or parameter that holds the cluster's encryption key: `module.cluster.encryption_key_arn`."
  nullable    = false

  validation {
    condition     = can(regex("^arn:[a-z-]+:(secretsmanager|ssm):", var.encryption_key_arn))
    error_message = "encryption_key_arn: want the ARN of a secret (arn:aws:secretsmanager:...) or of a parameter (arn:aws:ssm:...)"
  }
}

variable "server_profile_name" {
  type        = string
  description = "Name of the servers' instance profile: `module.account.server_profile_name`."
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9+=,.@_-]{1,128}$", var.server_profile_name))
    error_message = "server_profile_name: want the name of an instance profile, not its ARN"
  }
}

variable "agent_profile_name" {
  type        = string
  description = "Name of the instances' instance profile: `module.account.agent_profile_name`."
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9+=,.@_-]{1,128}$", var.agent_profile_name))
    error_message = "agent_profile_name: want the name of an instance profile, not its ARN"
  }
}

variable "shard" {
  type        = string
  description = "ID of the shard, such as the name of its zone. The shard's config is written to `config/{shard}.jsonc`."
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", var.shard)) && length(var.shard) <= 32
    error_message = "shard: want lowercase letters, digits and single inner hyphens, at most 32 characters"
  }
}

variable "subnet" {
  type = object({
    id        = string
    vpc_id    = string
    zone      = string
    cidr      = string
    ipv6_cidr = optional(string)
  })
  description = <<-EOT
    The subnet of the servers and of the leader's address, in the shard's zone: an element of `module.network.subnets`, or the same
    facts about any other subnet.
  EOT
  nullable    = false

  validation {
    condition     = try(!strcontains(var.subnet.cidr, ":") && cidrsubnet(var.subnet.cidr, 0, 0) == var.subnet.cidr, false)
    error_message = "subnet.cidr: want an IPv4 range by its first address, such as 10.0.0.0/24, not ${var.subnet.cidr}"
  }
}

variable "operator_cidrs" {
  type        = list(string)
  description = "Address ranges from which operators and `nstance-admin` can reach the servers' registration and operator ports."
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for c in var.operator_cidrs : can(cidrhost(c, 0))])
    error_message = "operator_cidrs: want ranges of addresses, such as 10.0.0.0/8"
  }
}

variable "operator_security_group_ids" {
  type        = map(string)
  description = <<-EOT
    Security groups from which operators and `nstance-admin` can reach the servers' registration and operator ports: IDs by names of
    your choice, which become part of the rules' descriptions.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for id in var.operator_security_group_ids : startswith(id, "sg-")])
    error_message = "operator_security_group_ids: want IDs of security groups, such as sg-0123456789abcdef0"
  }
}

variable "tags" {
  type        = map(string)
  description = "Tags for all resources of this module."
  default     = {}
  nullable    = false
}
