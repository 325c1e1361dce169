package fleet

// zoned is the kind of provider whose machines are named within a zone.
const zoned = "aws"

// NodeProviderID is what a machine's kubelet sets as Node.spec.providerID. kind is
// the provider's, id the machine's name there; empty: there is no machine yet.
func NodeProviderID(kind, zone, id string) string {
	switch {
	case id == "":
		return ""
	case kind == zoned:
		return kind + ":///" + zone + "/" + id
	default:
		return kind + ":///" + id
	}
}
