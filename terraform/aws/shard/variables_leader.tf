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
    condition     = !var.leader.ipv6 || (var.subnet.ipv6_cidr == null ? false : var.subnet.ipv6_cidr != "")
    error_message = "leader.ipv6: want false, not true: the subnet, ${var.subnet.cidr}, has no IPv6 range (subnet.ipv6_cidr)"
  }
  validation {
    condition = var.leader.ipv4_address == null || try(
      cidrhost("${var.leader.ipv4_address}/32", 0) == var.leader.ipv4_address, false
    )
    error_message = "leader.ipv4_address: want an IPv4 address such as 10.0.0.10, not ${coalesce(var.leader.ipv4_address, "none")}"
  }
  validation {
    condition = var.leader.ipv6_address == null || try(
      cidrhost("${var.leader.ipv6_address}/128", 0) == var.leader.ipv6_address, false
    )
    error_message = join("", [
      "leader.ipv6_address: want an IPv6 address in its shortest form, lowercase, such as 2001:db8::10, not ",
      coalesce(var.leader.ipv6_address, "none"),
    ])
  }
  # What is no address at all is told above.
  validation {
    condition = var.leader.ipv4_address == null || try(
      cidrsubnet("${var.leader.ipv4_address}/${split("/", var.subnet.cidr)[1]}", 0, 0) == cidrsubnet(var.subnet.cidr, 0, 0), true
    )
    error_message = "leader.ipv4_address: want one of the subnet, ${var.subnet.cidr}, not ${coalesce(var.leader.ipv4_address, "none")}"
  }
  validation {
    condition = var.leader.ipv6_address == null || try(
      cidrsubnet("${var.leader.ipv6_address}/${split("/", var.subnet.ipv6_cidr)[1]}", 0, 0) == cidrsubnet(var.subnet.ipv6_cidr, 0, 0), true
    )
    error_message = join("", [
      "leader.ipv6_address: want one of the subnet, ${coalesce(var.subnet.ipv6_cidr, "which has no range")}, not ",
      coalesce(var.leader.ipv6_address, "none"),
    ])
  }
  validation {
    condition = !try(contains([for n in [0, 1, 2, 3, -1] : cidrhost(var.subnet.cidr, n)], var.leader.ipv4_address), false)
    error_message = join("", [
      "leader.ipv4_address: want none of those that AWS keeps in ${var.subnet.cidr}, the first four and the last, not ",
      coalesce(var.leader.ipv4_address, "none"),
    ])
  }
  validation {
    condition = !try(contains([for n in [0, 1, 2, 3, -1] : cidrhost(var.subnet.ipv6_cidr, n)], var.leader.ipv6_address), false)
    error_message = join("", [
      "leader.ipv6_address: want none of those that AWS keeps in ${coalesce(var.subnet.ipv6_cidr, "the subnet")}, ",
      "the first four and the last, not ",
      coalesce(var.leader.ipv6_address, "none"),
    ])
  }
  validation {
    condition = var.standbys == 0 || (
      (!var.leader.ipv4 || var.leader.ipv4_address != null) && (!var.leader.ipv6 || var.leader.ipv6_address != null)
    )
    error_message = "leader: with standbys want ipv4_address, and ipv6_address for IPv6: no interface reserves them"
  }
}
