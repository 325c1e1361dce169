package fleet

// zoned is the provider kind whose machine ids are scoped to a zone.
const zoned = "aws"

// NodeProviderID returns the Node.spec.providerID that a machine's kubelet sets. kind is
// the provider's kind and id the machine's provider ID; it returns "" if id is empty.
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
