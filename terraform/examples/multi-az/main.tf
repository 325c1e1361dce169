# Three shards, one in each zone, each with a standby, in subnets without public addresses. A load balancer in each zone forwards to
# the web machines there.

provider "aws" {
  region = var.region
}

locals {
  zones = { for n, letter in ["a", "b", "c"] : "${var.region}${letter}" => n }
}

module "cluster" {
  source     = "../../aws/cluster"
  cluster_id = "example"
}

module "account" {
  source             = "../../aws/account"
  cluster_id         = module.cluster.id
  bucket             = module.cluster.bucket
  encryption_key_arn = module.cluster.encryption_key_arn
}

module "network" {
  source      = "../../aws/network"
  name        = "example"
  cluster_id  = module.cluster.id
  vpc_cidr    = "10.0.0.0/16"
  enable_ipv6 = true
  nat         = "per-zone"

  subnets = merge(
    { for zone, n in local.zones : "public-${zone}" => { role = "public", zone = zone, cidr = "10.0.${n}.0/24", ipv6_number = n } },
    { for zone, n in local.zones : "servers-${zone}" => {
      role = "private", zone = zone, cidr = "10.0.${16 + n}.0/24", ipv6_number = 16 + n
    } },
    { for zone, n in local.zones : "workers-${zone}" => {
      role = "private", zone = zone, cidr = "10.0.${64 + 16 * n}.0/20", ipv6_number = 64 + n, pool = "workers"
    } },
  )
}

module "shard" {
  source   = "../../aws/shard"
  for_each = local.zones

  cluster_id          = module.cluster.id
  bucket              = module.cluster.bucket
  encryption_key_arn  = module.cluster.encryption_key_arn
  server_profile_name = module.account.server_profile_name
  agent_profile_name  = module.account.agent_profile_name
  shard               = each.key
  subnet              = module.network.subnets["servers-${each.key}"]

  # With standbys no network interface holds the leader's address, so AWS can't choose it.
  standbys            = 1
  leader_ipv4_address = "10.0.${16 + each.value}.10"

  server_package = var.releases["arm64"]
  agent_packages = var.releases
  operator_cidrs = var.operator_cidrs

  load_balancers = {
    www = { port = 443, internal = false, subnet_ids = [module.network.subnets["public-${each.key}"].id], cidrs = ["0.0.0.0/0"] }
  }

  subnet_pools = module.network.subnet_pools[each.key]
  templates = {
    web = { kind = "web", instance_type = "m7g.large", subnet_pool = "workers", volume_gb = 20 }
    job = { kind = "job", arch = "amd64", instance_type = "c7i.xlarge", subnet_pool = "workers", spot = true }
  }
  groups = { default = {
    web  = { template = "web", size = 2, load_balancers = ["www"] }
    jobs = { template = "job", size = 0 }
  } }
  settings = { expiry = { eligible_age = "30d" } }
}
