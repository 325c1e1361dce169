# What the machines of servers and instances are, and what they install.

variable "server_package" {
  type        = object({ url = string, sha256 = string })
  description = <<-EOT
    The archive `nstance_{version}_linux_{arch}.tar.gz` that servers install: its URL and its SHA-256. Use either this, or
    `server_image` and `asg_image`.
  EOT
  default     = null

  validation {
    condition     = (var.server_package == null) != (var.server_image == null)
    error_message = "server_package: want either server_package or server_image"
  }
  validation {
    condition     = var.server_package == null || can(regex("^https://[^ '\"\\\\$`]+$", var.server_package.url))
    error_message = "server_package.url: want https://, and no spaces, quotes, backslashes and dollar signs"
  }
  validation {
    condition     = var.server_package == null || can(regex("^[0-9a-f]{64}$", var.server_package.sha256))
    error_message = "server_package.sha256: want 64 hexadecimal digits, as SHA256SUMS has them"
  }
}

variable "server_image" {
  type        = string
  description = "The container image of nstance-server, by digest. Servers then install Docker to run it."
  default     = null

  validation {
    condition     = var.server_image == null || can(regex("^[a-z0-9./_:-]+@sha256:[0-9a-f]{64}$", var.server_image))
    error_message = "server_image: want it by digest, such as ghcr.io/example/nstance-server@sha256: and 64 digits"
  }
}

variable "asg_image" {
  type        = string
  description = "The container image of nstance-asg, by digest: required with `server_image`."
  default     = null

  validation {
    condition     = (var.asg_image == null) == (var.server_image == null)
    error_message = "asg_image: want it together with server_image"
  }
  validation {
    condition     = var.asg_image == null || can(regex("^[a-z0-9./_:-]+@sha256:[0-9a-f]{64}$", var.asg_image))
    error_message = "asg_image: want it by digest, such as ghcr.io/example/nstance-asg@sha256: and 64 digits"
  }
}

variable "agent_packages" {
  type        = map(object({ url = string, sha256 = string }))
  description = <<-EOT
    By architecture (`amd64`, `arm64`), the archives `nstance_{version}_linux_{arch}.tar.gz` that instances install: their URLs and
    their SHA-256. Templates with `userdata` install what that says instead.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.agent_packages) == 0 || var.agent_image == null
    error_message = "agent_packages: want agent_packages or agent_image, not both"
  }
  validation {
    condition     = alltrue([for arch in keys(var.agent_packages) : contains(["amd64", "arm64"], arch)])
    error_message = "agent_packages: want them by amd64 and arm64"
  }
  validation {
    condition = alltrue([
      for p in var.agent_packages : can(regex("^https://[^ '\"\\\\$`{}]+$", p.url)) && can(regex("^[0-9a-f]{64}$", p.sha256))
    ])
    error_message = "agent_packages: want url with https://, without spaces, quotes, braces or dollar signs, and sha256 with 64 digits"
  }
}

variable "agent_image" {
  type        = string
  description = "The container image of nstance-agent, by digest. Instances then install Docker to run it."
  default     = null

  validation {
    condition     = var.agent_image == null || can(regex("^[a-z0-9./_:-]+@sha256:[0-9a-f]{64}$", var.agent_image))
    error_message = "agent_image: want it by digest, such as ghcr.io/example/nstance-agent@sha256: and 64 digits"
  }
}

variable "server_arch" {
  type        = string
  description = "Architecture of the servers' machines: `amd64` or `arm64`."
  default     = "arm64"
  nullable    = false

  validation {
    condition     = contains(["amd64", "arm64"], var.server_arch)
    error_message = "server_arch: want amd64 or arm64, not ${var.server_arch}"
  }
}

variable "server_instance_type" {
  type        = string
  description = "EC2 instance type of the servers' machines."
  default     = "t4g.micro"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", var.server_instance_type))
    error_message = "server_instance_type: want an EC2 instance type, such as t4g.micro"
  }
  # AWS names Graviton types with a g after the generation; a1 was the first of them.
  validation {
    condition = (
      (var.server_arch == "arm64") ==
      can(regex("^(a1|[a-z]+[0-9]+g[a-z]*(-[a-z0-9]+)?|p[0-9]+e-gb[0-9]+)\\.", var.server_instance_type))
    )
    error_message = join("", [
      "server_instance_type: want one of server_arch, ${var.server_arch}, not ${var.server_instance_type}. Types with a g after the ",
      "generation, such as t4g and m7g, are arm64, and others amd64, such as t3",
    ])
  }
}

variable "server_ami_id" {
  type        = string
  description = <<-EOT
    ID of the servers' machine image, which must have cloud-init and systemd-networkd. `null` uses the newest image of
    `server_ami_parameter` at each apply.
  EOT
  default     = null

  validation {
    condition     = var.server_ami_id == null || can(regex("^ami-[0-9a-f]+$", var.server_ami_id))
    error_message = "server_ami_id: want the ID of an image, such as ami-0123456789abcdef0"
  }
}

variable "server_ami_parameter" {
  type        = string
  description = "Name of the public parameter that holds the ID of the servers' machine image. `null` means that of Amazon Linux 2023."
  default     = null

  validation {
    condition     = var.server_ami_parameter == null || var.server_ami_id == null
    error_message = "server_ami_parameter: want server_ami_id or server_ami_parameter, not both"
  }
}

variable "server_root_device" {
  type        = string
  description = "Name of the root device in the servers' machine image."
  default     = "/dev/xvda"
  nullable    = false

  validation {
    condition     = can(regex("^(/dev/)?[a-z0-9]+$", var.server_root_device))
    error_message = "server_root_device: want the name of a device, such as /dev/xvda"
  }
}

variable "server_volume_gb" {
  type        = number
  description = "Size of the servers' root volumes in GiB."
  default     = 8
  nullable    = false

  validation {
    condition     = var.server_volume_gb >= 2 && var.server_volume_gb <= 16384
    error_message = "server_volume_gb: want 2 to 16384"
  }
}

variable "server_kms_key_arn" {
  type        = string
  description = <<-EOT
    ARN of the KMS key that encrypts the servers' root volumes. Its policy must allow the service-linked role of Auto Scaling to use
    it. `null` means the account's default key for EBS.
  EOT
  default     = null

  validation {
    condition     = var.server_kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:", var.server_kms_key_arn))
    error_message = "server_kms_key_arn: want the ARN of a KMS key, such as arn:aws:kms:eu-central-1:123456789012:key/0f1e2d3c"
  }
}

variable "server_public_ip" {
  type        = bool
  description = "Whether servers have public IPv4 addresses. `null` means what the subnet's setting says."
  default     = null
}

variable "server_boot_timeout_seconds" {
  type        = number
  description = <<-EOT
    A server that is not ready this many seconds after its launch is replaced. `null` means 600, or 1200 with `server_image`. A change
    replaces the Auto Scaling group, with its servers.
  EOT
  default     = null

  validation {
    condition = (
      var.server_boot_timeout_seconds == null ? true : var.server_boot_timeout_seconds >= 30 && var.server_boot_timeout_seconds <= 7200
    )
    error_message = "server_boot_timeout_seconds: want 30 to 7200, not ${coalesce(var.server_boot_timeout_seconds, 0)}"
  }
}
