package plan

// rotation names the oldest instance that was built with another infra
// configuration than the group has now, when nothing else is going on.
func (d *decision) rotation() (*member, string) {
	if !d.calm() {
		return nil, ""
	}
	return d.oldest(func(m *member) bool { return running(m) && m.Hashes.Outdated(d.view.Group.Hashes) }), ReasonDrift
}
