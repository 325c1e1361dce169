variable "server" {
  type = object({
    package   = optional(object({ url = string, sha256 = string }))
    image     = optional(string)
    asg_image = optional(string)
  })
  description = <<-EOT
    What runs: the archive `nstance_{version}_linux_{arch}.tar.gz` by its `url` and SHA-256, or container images by digest, `image` of
    nstance-server and `asg_image` of nstance-asg, for which Docker is installed.
  EOT
  nullable    = false

  validation {
    condition     = (var.server.package == null) != (var.server.image == null)
    error_message = "server: want either package or image"
  }
  validation {
    condition     = (var.server.image == null) == (var.server.asg_image == null)
    error_message = "server: want image and asg_image together"
  }
  validation {
    condition     = var.server.package == null || can(regex("^https://[^ '\"\\\\$`]+$", var.server.package.url))
    error_message = "server.package.url: want https://, and no spaces, quotes, backslashes and dollar signs"
  }
  validation {
    condition     = var.server.package == null || can(regex("^[0-9a-f]{64}$", var.server.package.sha256))
    error_message = "server.package.sha256: want 64 hexadecimal digits, as SHA256SUMS has them"
  }
  validation {
    condition = alltrue([
      for i in [var.server.image, var.server.asg_image] : i == null || can(regex("^[a-z0-9./_:-]+@sha256:[0-9a-f]{64}$", i))
    ])
    error_message = "server: image, asg_image: want them by digest, such as ghcr.io/example/nstance-server@sha256: and 64 digits"
  }
}

variable "agent" {
  type = object({
    packages = optional(map(object({ url = string, sha256 = string })), {})
    image    = optional(string)
  })
  description = <<-EOT
    What instances run, unless their template has userdata of its own: by architecture (`amd64`, `arm64`) the archive
    `nstance_{version}_linux_{arch}.tar.gz` by its `url` and SHA-256, or the container image of nstance-agent by digest, for which
    Docker is installed.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.agent.packages) == 0 || var.agent.image == null
    error_message = "agent: want packages or image, not both"
  }
  validation {
    condition     = alltrue([for arch in keys(var.agent.packages) : contains(["amd64", "arm64"], arch)])
    error_message = "agent.packages: want them by amd64 and arm64"
  }
  validation {
    condition = alltrue([
      for p in var.agent.packages : can(regex("^https://[^ '\"\\\\$`{}]+$", p.url)) && can(regex("^[0-9a-f]{64}$", p.sha256))
    ])
    error_message = "agent.packages: want url with https://, without spaces, quotes, braces or dollar signs, and sha256 with 64 digits"
  }
  validation {
    condition     = var.agent.image == null || can(regex("^[a-z0-9./_:-]+@sha256:[0-9a-f]{64}$", var.agent.image))
    error_message = "agent.image: want it by digest, such as ghcr.io/example/nstance-agent@sha256: and 64 digits"
  }
}

variable "vm" {
  type = object({
    instance_type        = optional(string, "t4g.micro")
    arch                 = optional(string, "arm64")
    ami_id               = optional(string)
    ami_parameter        = optional(string)
    root_device          = optional(string, "/dev/xvda")
    volume_gb            = optional(number, 8)
    kms_key_arn          = optional(string)
    public_ip            = optional(bool)
    boot_timeout_seconds = optional(number)
  })
  description = <<-EOT
    The servers' machines. `ami_parameter` is the public parameter with an image's id, that of Amazon Linux 2023 unless set; its newest
    image is taken at each apply, unless `ami_id` names one. It has to have cloud-init and systemd-networkd. `public_ip` null: as the
    subnet says. `boot_timeout_seconds`: a server that is not ready by then is replaced; 600 unless set, and 1200 with `server.image`.
    Without `kms_key_arn` volumes have EBS's own key; the policy of a key of yours has to let Auto Scaling's service role use it.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = contains(["amd64", "arm64"], var.vm.arch)
    error_message = "vm.arch: want amd64 or arm64, not ${var.vm.arch}"
  }
  validation {
    condition     = var.vm.ami_id == null || can(regex("^ami-[0-9a-f]+$", var.vm.ami_id))
    error_message = "vm.ami_id: want the id of an image, such as ami-0123456789abcdef0"
  }
  validation {
    condition     = var.vm.ami_id == null || var.vm.ami_parameter == null
    error_message = "vm: want ami_id or ami_parameter, not both"
  }
  validation {
    condition     = can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", var.vm.instance_type))
    error_message = "vm.instance_type: want the name of one, such as t4g.micro"
  }
  # Of what AWS calls its types: Graviton has a g behind the generation, and a1 was the first of it.
  validation {
    condition = (var.vm.arch == "arm64") == can(regex("^(a1|[a-z]+[0-9]+g[a-z]*(-[a-z0-9]+)?|p[0-9]+e-gb[0-9]+)\\.", var.vm.instance_type))
    error_message = join("", [
      "vm.instance_type: want one of vm.arch, ${var.vm.arch}, not ${var.vm.instance_type}. Those with a g behind the generation, such as ",
      "t4g and m7g, are arm64, and others amd64, such as t3",
    ])
  }
  validation {
    condition     = var.vm.volume_gb >= 2 && var.vm.volume_gb <= 16384
    error_message = "vm.volume_gb: want 2 to 16384"
  }
  validation {
    condition     = var.vm.boot_timeout_seconds == null ? true : var.vm.boot_timeout_seconds >= 30 && var.vm.boot_timeout_seconds <= 7200
    error_message = "vm.boot_timeout_seconds: want 30 to 7200, not ${coalesce(var.vm.boot_timeout_seconds, 0)}"
  }
}
