package process

// withoutGain calls start; macOS has no equivalent of Linux's no_new_privs.
func withoutGain(start func() error) error { return start() }
