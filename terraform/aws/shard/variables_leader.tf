variable "standbys" {
  type        = number
  description = <<-EOT
    Servers that stand by beside the leader. With 0 the leader's address is that of a network interface of its own (ENI), which the
    next server takes over. Above, it is a secondary address of the leader's primary interface, which moves in one call; then
    `leader.ipv4_address` and `leader.ipv6_address` have to be said.
  EOT
  default     = 0
  nullable    = false

  validation {
    condition     = var.standbys >= 0 && var.standbys <= 4 && floor(var.standbys) == var.standbys
    error_message = "standbys: want a whole number from 0 to 4"
  }
}

variable "leader" {
  type = object({
    ipv4         = optional(bool, true)
    ipv4_address = optional(string)
    ipv6         = optional(bool, false)
    ipv6_address = optional(string)
  })
  description = <<-EOT
    The address that follows the leader: of IPv4, of IPv6, or of both. Without `ipv4_address` and `ipv6_address` AWS picks one of the
    subnet's, when there are no standbys.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = var.leader.ipv4 || var.leader.ipv6
    error_message = "leader: want ipv4, ipv6 or both"
  }
  validation {
    condition     = (var.leader.ipv4 || var.leader.ipv4_address == null) && (var.leader.ipv6 || var.leader.ipv6_address == null)
    error_message = "leader: ipv4_address wants ipv4 = true beside it, and ipv6_address ipv6 = true"
  }
  validation {
    condition     = var.leader.ipv4_address == null || can(cidrhost("${var.leader.ipv4_address}/32", 0))
    error_message = "leader.ipv4_address: want an IPv4 address of the subnet, such as 10.0.0.10"
  }
  validation {
    condition     = var.leader.ipv6_address == null || can(cidrhost("${var.leader.ipv6_address}/128", 0))
    error_message = "leader.ipv6_address: want an IPv6 address of the subnet, such as 2001:db8::10"
  }
  validation {
    condition = var.leader.ipv4_address == null || try(
      cidrsubnet("${var.leader.ipv4_address}/${split("/", var.subnet.cidr)[1]}", 0, 0) == var.subnet.cidr, false
    )
    error_message = "leader.ipv4_address: want an address of the subnet, ${var.subnet.cidr}"
  }
  validation {
    condition = var.leader.ipv6_address == null || try(
      cidrsubnet("${var.leader.ipv6_address}/${split("/", var.subnet.ipv6_cidr)[1]}", 0, 0) == var.subnet.ipv6_cidr, false
    )
    error_message = "leader.ipv6_address: want an address of the subnet's IPv6 range, ${coalesce(var.subnet.ipv6_cidr, "which it lacks")}"
  }
  validation {
    condition = var.standbys == 0 || (
      (!var.leader.ipv4 || var.leader.ipv4_address != null) && (!var.leader.ipv6 || var.leader.ipv6_address != null)
    )
    error_message = "leader: with standbys want ipv4_address, and ipv6_address for IPv6: no interface reserves them"
  }
}
