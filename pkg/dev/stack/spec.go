package stack

// Spec describes one process of the stack.
type Spec struct {
	Name   string
	Path   string // the binary
	Args   []string
	Env    []string // beside PATH and HOME
	Health string   // URL that answers 200 once the process is up
}

// specs lists the components in order of start; object storage is the first.
func specs(cfg Config) []Spec {
	all := []Spec{storageSpec(cfg)}
	servers := shards()
	if cfg.Standby {
		servers = append(servers, shard{"standby", standbyOf, 9010})
	}
	for _, s := range servers {
		all = append(all, serverSpec(cfg, s))
	}
	return all
}
