"""ADD, DEL, CHECK and GC as the daemon serves them: one module for each verb, which reads as the verb's stages."""
