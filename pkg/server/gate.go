package server

// gate tells a service's callers where the leader is.
type gate struct {
	server *Server
	to     service
}

// service picks one service's address.
type service int

const (
	toRegistration service = iota
	toOperator
	toAgent
)

// Leading implements rpc.Gate.
func (g gate) Leading() (leaderAddr string, ok bool) {
	if g.server.current.Load() != nil {
		return "", true
	}
	record, known := g.server.elector.Leader()
	if !known {
		return "", false
	}
	switch g.to {
	case toRegistration:
		return record.Addrs.Registration, false
	case toOperator:
		return record.Addrs.Operator, false
	default:
		return record.Addrs.Agent, false
	}
}
