package stack

// Spec describes one process of the stack.
type Spec struct {
	Name   string
	Path   string // the binary
	Args   []string
	Env    []string // in addition to PATH and HOME
	Health string   // URL that returns 200 once the process is up
}

// specs lists the components in order of start; object storage is the first.
func specs(cfg Config) []Spec {
	all := []Spec{storageSpec(cfg)}
	servers := cfg.shards()
	if cfg.Standby {
		servers = append(servers, cfg.standby())
	}
	for _, s := range servers {
		all = append(all, serverSpec(cfg, s))
	}
	return all
}
