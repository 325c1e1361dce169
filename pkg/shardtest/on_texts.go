package shardtest

// doConfigLost removes config/ manually.
func doConfigLost(s *Shard, _ args) error { return s.bucket.putText(configKey(), nil) }

// doConfigOld replaces it with an earlier version.
func doConfigOld(s *Shard, a args) error {
	return s.bucket.putBack(configKey(), configTexts, a.count)
}

// doAppliedLost removes the last accepted config manually.
func doAppliedLost(s *Shard, _ args) error { return s.bucket.putText(appliedKey(), nil) }

// doAppliedOld replaces it with an earlier version.
func doAppliedOld(s *Shard, a args) error {
	return s.bucket.putBack(appliedKey(), acceptedTexts, a.count)
}

// doAppliedBack restores it as a server wrote it last.
func doAppliedBack(s *Shard, _ args) error { return s.bucket.putBack(appliedKey(), acceptedTexts, 0) }

// doForget removes a server's cache before its next start.
func doForget(s *Shard, a args) error {
	v, err := s.place(a.words[0])
	if err == nil {
		v.forgets = true
	}
	return err
}
